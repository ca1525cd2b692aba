"""An MCP server: other programs list, search, read, open, send to and follow sessions."""
