"""Results: tables and exports of them, and imports from another Dyno."""
