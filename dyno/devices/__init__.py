"""What is on this host: its devices, their peaks and sensors."""
