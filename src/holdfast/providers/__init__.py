"""Models behind one port: what Holdfast asks, in the words of each vendor, and what comes back."""
