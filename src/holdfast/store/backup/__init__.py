"""Backup, restore, and copying a store from one database to another."""
