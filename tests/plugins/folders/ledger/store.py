import hashlib
import json
import sqlite3


class LedgerStore:
    def __init__(self, path):
        path.parent.mkdir(parents=True, exist_ok=True)
        self.connection = sqlite3.connect(path)
        self.connection.execute(
            "CREATE TABLE IF NOT EXISTS message (digest TEXT PRIMARY KEY, conversation TEXT, body TEXT)"
        )
        self.connection.execute("CREATE TABLE IF NOT EXISTS told (kind TEXT, session TEXT, facts TEXT)")
        self.connection.commit()

    def add(self, conversation, messages):
        for message in messages:
            body = json.dumps(message, sort_keys=True)
            digest = hashlib.sha256(body.encode()).hexdigest()
            self.connection.execute("INSERT OR IGNORE INTO message VALUES (?, ?, ?)", (digest, conversation, body))
        self.connection.commit()

    def tell(self, kind, session, facts):
        self.connection.execute("INSERT INTO told VALUES (?, ?, ?)", (kind, session, json.dumps(facts, default=str)))
        self.connection.commit()

    def find(self, words):
        rows = self.connection.execute("SELECT body FROM message WHERE body LIKE ?", (f"%{words}%",))
        return [json.loads(row[0])["content"] for row in rows]

    def count(self):
        return self.connection.execute("SELECT count(*) FROM message").fetchone()[0]
