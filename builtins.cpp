// Names every built-in class, one line each.
