"""Model providers behind one port: each converts requests to the format of its vendor, and replies back."""
