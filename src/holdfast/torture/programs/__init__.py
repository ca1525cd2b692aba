"""The programs that trials start as real processes and kill."""
