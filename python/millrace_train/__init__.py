"""The program Millrace, beside the torch of this Python. `millrace` starts it, and so does `python -m millrace_train`.

There is nothing to import here: people who write Python start the program, and read the files of a run.
"""
