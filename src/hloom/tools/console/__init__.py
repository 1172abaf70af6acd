"""What commands share: arguments, options, completion, colors and progress."""
