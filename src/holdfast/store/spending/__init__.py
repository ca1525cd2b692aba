"""What was spent on models: sums derived from the log, and reservations in the budgets."""
