"""What holds for every test of the repository."""

pytest_plugins = ["tests.skips"]
