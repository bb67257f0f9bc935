"""What runs in a child process: each module imports one other runtime, and nothing of cabochon but how to tell."""
