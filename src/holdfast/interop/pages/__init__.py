"""Shows a session's log as a conversation in HTML: for the dashboard, for shared links and for exported files."""
