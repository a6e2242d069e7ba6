"""The demo: a private database, three nodes, a hostile receiver, 5,000 payments, and a kill -9 in the middle.

main.py tells the story from top to bottom. installation.py is all that knows Railyard's command line and configuration,
record.py all that knows its tables; judge.py compares that record with the receiver's log, line by line, and neither
believes the other; rate.py judges the cap on calls. processes.py sees to it that nothing is left running, however this
ends.
"""
