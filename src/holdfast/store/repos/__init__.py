"""Repositories: plain functions on a transaction, one module per table or per kind of query."""
