"""Budgets: what calls of models may cost, and what they did cost."""
