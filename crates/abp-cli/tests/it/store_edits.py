"""Edits copies of a store: `store_edits.py STORE PLAN` reads a JSON list of [target, statement].

Without a plan, prints the tables with their columns, and how many rows each has.
"""

import json
import shutil
import sqlite3
import sys


def change(value):
    """Returns another value of the same type."""
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        # The last character that is not structure, so that JSON stays JSON.
        for place in range(len(value) - 1, -1, -1):
            if value[place].isalnum():
                other = "1" if value[place] != "1" else "2"
                return value[:place] + other + value[place + 1 :]
        return value + "x"
    if isinstance(value, bytes):
        return bytes([value[0] ^ 1]) + value[1:] if value else b"x"
    return 7


def main():
    store, plan = sys.argv[1], json.load(sys.stdin)
    connection = sqlite3.connect(store)
    tables = "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
    names = [name for (name,) in connection.execute(tables)]
    if not plan:
        told = {}
        for name in names:
            columns = [row[1] for row in connection.execute(f"PRAGMA table_info({name})")]
            rows = connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]
            told[name] = {"columns": columns, "rows": rows}
        print(json.dumps(told))
        return
    connection.close()
    for target, table, column in plan:
        shutil.copyfile(store, target)
        connection = sqlite3.connect(target)
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        keys = [row for row in connection.execute(f"SELECT * FROM {table}")]
        # The row in the middle: neither the first nor the last of many.
        row = keys[len(keys) // 2]
        where = " AND ".join(f"{name} IS ?" for name in columns)
        if column is None:
            statement, values = f"DELETE FROM {table} WHERE {where}", row
        else:
            new = change(row[columns.index(column)])
            statement = f"UPDATE {table} SET {column} = ? WHERE {where}"
            values = (new, *row)
        try:
            changed = connection.execute(statement, values).rowcount
        except sqlite3.IntegrityError:
            # Another row has the value; a far one has not.
            new = new + 1000 if isinstance(new, int) else new
            changed = connection.execute(statement, (new, *row)).rowcount
        assert changed == 1, (table, column, changed)
        connection.commit()
        connection.close()


main()
