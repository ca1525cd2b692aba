"""Reading the web: pages as text, and search results."""
