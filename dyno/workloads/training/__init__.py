"""What several training workloads share."""
