"""Reading and writing, as plateau has it."""
