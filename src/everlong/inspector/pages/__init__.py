"""The contents of the inspector's pages: functions that read a store and return plain values. They know no HTTP."""
