"""Background processes: started so that they outlive us, found again, looked at, and ended whole."""
