"""Parts shared by commands: arguments, options, completion, colors, progress."""
