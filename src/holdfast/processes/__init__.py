"""Background processes: start them so that they outlive the worker, find them again, inspect and terminate them."""
