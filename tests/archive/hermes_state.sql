CREATE TABLE schema_version (
    version INTEGER NOT NULL
);
INSERT INTO schema_version VALUES (22);
CREATE TABLE sessions (
    id TEXT PRIMARY KEY,
    source TEXT NOT NULL,
    user_id TEXT,
    session_key TEXT,
    chat_id TEXT,
    chat_type TEXT,
    thread_id TEXT,
    display_name TEXT,
    origin_json TEXT,
    expiry_finalized INTEGER DEFAULT 0,
    model TEXT,
    model_config TEXT,
    system_prompt TEXT,
    parent_session_id TEXT,
    started_at REAL NOT NULL,
    ended_at REAL,
    end_reason TEXT,
    message_count INTEGER DEFAULT 0,
    tool_call_count INTEGER DEFAULT 0,
    input_tokens INTEGER DEFAULT 0,
    output_tokens INTEGER DEFAULT 0,
    cache_read_tokens INTEGER DEFAULT 0,
    cache_write_tokens INTEGER DEFAULT 0,
    reasoning_tokens INTEGER DEFAULT 0,
    cwd TEXT,
    git_branch TEXT,
    git_repo_root TEXT,
    billing_provider TEXT,
    billing_base_url TEXT,
    billing_mode TEXT,
    estimated_cost_usd REAL,
    actual_cost_usd REAL,
    cost_status TEXT,
    cost_source TEXT,
    pricing_version TEXT,
    title TEXT,
    api_call_count INTEGER DEFAULT 0,
    handoff_state TEXT,
    handoff_platform TEXT,
    handoff_error TEXT,
    compression_failure_cooldown_until REAL,
    compression_failure_error TEXT,
    compression_fallback_streak INTEGER NOT NULL DEFAULT 0,
    profile_name TEXT,
    rewind_count INTEGER NOT NULL DEFAULT 0,
    archived INTEGER NOT NULL DEFAULT 0,
    FOREIGN KEY (parent_session_id) REFERENCES sessions(id)
);
INSERT INTO sessions VALUES ('20260901_100000_aaaaaa', 'cli', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 'claude-sonnet-4-5', NULL, 'You are Hermes.', NULL, 1.79490942025014781945e+09, 1.79490942039954113956e+09, 'compression', 6, 1, 1200, 90, 4000, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0.0125, NULL, NULL, NULL, NULL, 'Berths', 3, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, 0);
INSERT INTO sessions VALUES ('20260901_101500_cccccc', 'subagent', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 'tiny', '{"_delegate_from": "20260901_100000_aaaaaa"}', NULL, '20260901_100000_aaaaaa', 1.79490942036870670321e+09, NULL, NULL, 2, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, 0);
INSERT INTO sessions VALUES ('20260901_110000_bbbbbb', 'cli', NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 'claude-sonnet-4-5', NULL, 'You are Hermes.', '20260901_100000_aaaaaa', 1.79490942041155767438e+09, NULL, NULL, 5, 0, 300, 40, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, 0.002, NULL, NULL, NULL, NULL, NULL, 1, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, 0);
INSERT INTO sessions VALUES ('t-4', 'telegram', 'mira', NULL, NULL, NULL, NULL, NULL, NULL, 0, 'claude-sonnet-4-5', NULL, NULL, NULL, 1.7949094204484014511e+09, NULL, NULL, 2, 0, 0, 0, 0, 0, 0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, NULL, NULL, NULL, NULL, NULL, 0, NULL, 0, 0);
CREATE TABLE messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    session_id TEXT NOT NULL REFERENCES sessions(id),
    role TEXT NOT NULL,
    content TEXT,
    tool_call_id TEXT,
    tool_calls TEXT,
    tool_name TEXT,
    effect_disposition TEXT,
    timestamp REAL NOT NULL,
    token_count INTEGER,
    finish_reason TEXT,
    reasoning TEXT,
    reasoning_content TEXT,
    reasoning_details TEXT,
    codex_reasoning_items TEXT,
    codex_message_items TEXT,
    platform_message_id TEXT,
    observed INTEGER DEFAULT 0,
    active INTEGER NOT NULL DEFAULT 1,
    compacted INTEGER NOT NULL DEFAULT 0,
    api_content TEXT
);
INSERT INTO messages VALUES (1, '20260901_100000_aaaaaa', 'user', 'Which berth is free at noon?', NULL, NULL, NULL, NULL, 1788256800.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (2, '20260901_100000_aaaaaa', 'assistant', '', NULL, '[{"id": "c1", "type": "function", "function": {"name": "terminal", "arguments": "{\"command\": \"ls berths\"}"}}]', NULL, NULL, 1788256801.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (3, '20260901_100000_aaaaaa', 'tool', 'north.txt
south.txt', 'c1', NULL, 'terminal', NULL, 1788256802.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (4, '20260901_100000_aaaaaa', 'assistant', 'The south berth is free.', NULL, NULL, NULL, NULL, 1788256803.0, NULL, NULL, 'north.txt says taken', NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (5, '20260901_100000_aaaaaa', 'user', 'And who works the crane?', NULL, NULL, NULL, NULL, 1788256804.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (6, '20260901_100000_aaaaaa', 'assistant', 'Ada does, until four.', NULL, NULL, NULL, NULL, 1788256805.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (7, '20260901_101500_cccccc', 'user', 'Count the cranes.', NULL, NULL, NULL, NULL, 1788257700.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (8, '20260901_101500_cccccc', 'assistant', 'Three cranes.', NULL, NULL, NULL, NULL, 1788257701.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (9, '20260901_110000_bbbbbb', 'user', '[CONTEXT COMPACTION — REFERENCE ONLY] Earlier turns were compacted.
## Goal
Find a berth.', NULL, NULL, NULL, NULL, 1788260400.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (10, '20260901_110000_bbbbbb', 'user', 'And who works the crane?', NULL, NULL, NULL, NULL, 1788260401.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (11, '20260901_110000_bbbbbb', 'assistant', 'Ada does, until four.', NULL, NULL, NULL, NULL, 1788260402.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (12, '20260901_110000_bbbbbb', 'user', 'Book the south berth.', NULL, NULL, NULL, NULL, 1788260403.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (13, '20260901_110000_bbbbbb', 'assistant', 'Booked under number 4711.', NULL, NULL, NULL, NULL, 1788260404.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (14, 't-4', 'user', '', NULL, NULL, NULL, NULL, 1788300000.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
INSERT INTO messages VALUES (15, 't-4', 'assistant', 'In an hour.', NULL, NULL, NULL, NULL, 1788300001.0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 1, 0, NULL);
CREATE TABLE session_model_usage (
    session_id TEXT NOT NULL REFERENCES sessions(id) ON DELETE CASCADE,
    model TEXT NOT NULL,
    billing_provider TEXT NOT NULL DEFAULT '',
    billing_base_url TEXT NOT NULL DEFAULT '',
    billing_mode TEXT NOT NULL DEFAULT '',
    task TEXT NOT NULL DEFAULT '',
    api_call_count INTEGER NOT NULL DEFAULT 0,
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    reasoning_tokens INTEGER NOT NULL DEFAULT 0,
    estimated_cost_usd REAL NOT NULL DEFAULT 0,
    actual_cost_usd REAL NOT NULL DEFAULT 0,
    cost_status TEXT,
    cost_source TEXT,
    first_seen REAL,
    last_seen REAL,
    PRIMARY KEY (session_id, model, billing_provider, billing_base_url, billing_mode, task)
);
INSERT INTO session_model_usage VALUES ('20260901_100000_aaaaaa', 'claude-sonnet-4-5', '', '', '', '', 3, 1200, 90, 4000, 0, 0, 0.0125, 0.0, NULL, NULL, 1.79490942034777140618e+09, 1.79490942034777140618e+09);
INSERT INTO session_model_usage VALUES ('20260901_110000_bbbbbb', 'claude-sonnet-4-5', '', '', '', '', 1, 300, 40, 0, 0, 0, 0.002, 0.0, NULL, NULL, 1794909420.4451, 1794909420.4451);
