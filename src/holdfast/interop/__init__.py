"""JSON documents for clients, exports to files, and imports of other programs' logs."""
