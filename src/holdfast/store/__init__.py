"""The store: the database port, its drivers, and one module of plain functions per repository."""
