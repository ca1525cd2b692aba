"""The chat: in a terminal a line that can always be typed into, elsewhere line by line."""
