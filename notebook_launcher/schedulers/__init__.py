"""Schedulers as pure text: a request in, an argument list out; exit code, stdout and stderr in, data out. No I/O."""
