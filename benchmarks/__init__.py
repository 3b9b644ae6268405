"""How fast Dyno itself is, and whether its method is right. Each benchmark writes a page in docs/results/."""
