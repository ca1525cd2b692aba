"""Goals: setting them, checking them after each turn, and continuing or ending them."""
