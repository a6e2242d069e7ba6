"""Drills: what the system is for, played at full size on one machine, and judged from outside.

main.py tells the story of payments that all fall due at one instant; feed.py makes them up, by number, so that the
receiver (receiver.py) knows by itself what is right about each; figures.py is what is read from the database. All else is
the demo's: installation, processes, the receiver's log against the record.
"""
