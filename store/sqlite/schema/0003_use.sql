-- What projects use, besides what live agents do: agents that have ended, by how, their messages,
-- and the bytes of those, of records and of namespaces. Triggers keep it.
CREATE TABLE project_use (
  project  TEXT PRIMARY KEY,
  stopped  INTEGER NOT NULL,
  failed   INTEGER NOT NULL,
  messages INTEGER NOT NULL,
  bytes    INTEGER NOT NULL
) WITHOUT ROWID;
INSERT INTO project_use (project, stopped, failed, messages, bytes)
  SELECT project, sum(stopped), sum(failed), sum(messages), sum(bytes) FROM (
    SELECT project, status = 4 AS stopped, status = 6 AS failed, next_seq - 1 AS messages, written AS bytes FROM agent WHERE status IN (4, 6)
    UNION ALL SELECT project, 0, 0, 0, bytes FROM record_space
    UNION ALL SELECT substr(project, 1, instr(project, '/') - 1), 0, 0, 0, size FROM kv_total WHERE agent_no = 0 AND instr(project, '/') > 0 AND project NOT LIKE '~%'
  ) GROUP BY project;

CREATE TRIGGER project_use_ended AFTER INSERT ON agent WHEN new.status IN (4, 6) BEGIN
  INSERT INTO project_use (project, stopped, failed, messages, bytes) VALUES (new.project, new.status = 4, new.status = 6, new.next_seq - 1, new.written)
    ON CONFLICT DO UPDATE SET stopped = stopped + excluded.stopped, failed = failed + excluded.failed, messages = messages + excluded.messages, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER project_use_changed AFTER UPDATE OF status, next_seq, written ON agent WHEN old.status IN (4, 6) OR new.status IN (4, 6) BEGIN
  INSERT INTO project_use (project, stopped, failed, messages, bytes) VALUES (new.project, (new.status = 4) - (old.status = 4), (new.status = 6) - (old.status = 6),
    iif(new.status IN (4, 6), new.next_seq - 1, 0) - iif(old.status IN (4, 6), old.next_seq - 1, 0), iif(new.status IN (4, 6), new.written, 0) - iif(old.status IN (4, 6), old.written, 0))
    ON CONFLICT DO UPDATE SET stopped = stopped + excluded.stopped, failed = failed + excluded.failed, messages = messages + excluded.messages, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER project_use_erased AFTER DELETE ON agent WHEN old.status IN (4, 6) BEGIN
  INSERT INTO project_use (project, stopped, failed, messages, bytes) VALUES (old.project, -(old.status = 4), -(old.status = 6), 1 - old.next_seq, -old.written)
    ON CONFLICT DO UPDATE SET stopped = stopped + excluded.stopped, failed = failed + excluded.failed, messages = messages + excluded.messages, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER project_use_space AFTER INSERT ON record_space WHEN new.bytes <> 0 BEGIN
  INSERT INTO project_use (project, stopped, failed, messages, bytes) VALUES (new.project, 0, 0, 0, new.bytes)
    ON CONFLICT DO UPDATE SET stopped = stopped + excluded.stopped, failed = failed + excluded.failed, messages = messages + excluded.messages, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER project_use_space_changed AFTER UPDATE OF bytes ON record_space WHEN new.bytes <> old.bytes BEGIN
  INSERT INTO project_use (project, stopped, failed, messages, bytes) VALUES (new.project, 0, 0, 0, new.bytes - old.bytes)
    ON CONFLICT DO UPDATE SET stopped = stopped + excluded.stopped, failed = failed + excluded.failed, messages = messages + excluded.messages, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER project_use_space_gone AFTER DELETE ON record_space WHEN old.bytes <> 0 BEGIN
  INSERT INTO project_use (project, stopped, failed, messages, bytes) VALUES (old.project, 0, 0, 0, -old.bytes)
    ON CONFLICT DO UPDATE SET stopped = stopped + excluded.stopped, failed = failed + excluded.failed, messages = messages + excluded.messages, bytes = bytes + excluded.bytes;
END;

CREATE TRIGGER project_use_keys AFTER INSERT ON kv_total WHEN new.agent_no = 0 AND instr(new.project, '/') > 0 AND new.project NOT LIKE '~%' BEGIN
  INSERT INTO project_use (project, stopped, failed, messages, bytes) VALUES (substr(new.project, 1, instr(new.project, '/') - 1), 0, 0, 0, new.size)
    ON CONFLICT DO UPDATE SET stopped = stopped + excluded.stopped, failed = failed + excluded.failed, messages = messages + excluded.messages, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER project_use_keys_changed AFTER UPDATE OF size ON kv_total WHEN new.size <> old.size AND new.agent_no = 0 AND instr(new.project, '/') > 0 AND new.project NOT LIKE '~%' BEGIN
  INSERT INTO project_use (project, stopped, failed, messages, bytes) VALUES (substr(new.project, 1, instr(new.project, '/') - 1), 0, 0, 0, new.size - old.size)
    ON CONFLICT DO UPDATE SET stopped = stopped + excluded.stopped, failed = failed + excluded.failed, messages = messages + excluded.messages, bytes = bytes + excluded.bytes;
END;
CREATE TRIGGER project_use_keys_gone AFTER DELETE ON kv_total WHEN old.size <> 0 AND old.agent_no = 0 AND instr(old.project, '/') > 0 AND old.project NOT LIKE '~%' BEGIN
  INSERT INTO project_use (project, stopped, failed, messages, bytes) VALUES (substr(old.project, 1, instr(old.project, '/') - 1), 0, 0, 0, -old.size)
    ON CONFLICT DO UPDATE SET stopped = stopped + excluded.stopped, failed = failed + excluded.failed, messages = messages + excluded.messages, bytes = bytes + excluded.bytes;
END;
