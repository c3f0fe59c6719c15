"""A vendor on this machine: speaks four dialects, is strict about them, and tells what it heard."""
