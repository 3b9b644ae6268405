"""What goes out, where that takes more than a return: in pages, kept open, held back, or known already.

Of the service these files import `access`, `dependencies`, `edge`, `errors` and `state`; `routes` alone imports them.
"""
