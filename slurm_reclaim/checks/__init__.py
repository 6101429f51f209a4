"""What an installation needs, one family of checks a file; each judges what it was given to read.

`host.Host` is the only window to the machine, so that every family can be tried on recorded text.
"""
