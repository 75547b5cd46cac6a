-- Locks as rows. `PostgresStore::install` runs this file; it may run again.
--
-- Each question of the store is one function, and each call of it is one transaction. It begins with `enter`, which lets
-- one transaction at a time have a key, and which removes what has had its time. So everything below sees live rows only,
-- and nothing changes while it looks.

-- Several processes may run it at once: one has its turn after the other, however long that takes.
SET LOCAL statement_timeout = 0;
SELECT pg_advisory_xact_lock(4242, 0);

CREATE SCHEMA IF NOT EXISTS tower_lock;

-- All that is known of a key. A row counts until its time is over.
--
-- Holds are of the kind `exclusive` (both `Reentrant` and `Fair`), `write` or `read`.
-- Waiters are of the kind `queue` (of the fair queue, in the order of `place`), `writer`, `reader`, or `pass`: a reader
-- that goes before the next writer.
-- `withdrawn reentrant`, `withdrawn fair` … name attempts of which a copy may still arrive.
CREATE TABLE IF NOT EXISTS tower_lock.entry (
  key text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  id text COLLATE "C" NOT NULL,
  until timestamptz NOT NULL,
  place bigint GENERATED ALWAYS AS IDENTITY,
  PRIMARY KEY (key, kind, id)
);
CREATE INDEX IF NOT EXISTS entry_until ON tower_lock.entry (until);

-- What finished work has left.
CREATE TABLE IF NOT EXISTS tower_lock.record (
  key text COLLATE "C" PRIMARY KEY,
  value bytea NOT NULL,
  until timestamptz NOT NULL
);
CREATE INDEX IF NOT EXISTS record_until ON tower_lock.record (until);

-- Each number stands for 2^20 fencing tokens: the one that is granted, and those that may be reserved with it.
CREATE SEQUENCE IF NOT EXISTS tower_lock.token;

-- The server's time. Not `now()`, which stands still at the beginning of the transaction: it may have waited since.
CREATE OR REPLACE FUNCTION tower_lock.clock() RETURNS timestamptz
LANGUAGE sql VOLATILE AS 'SELECT clock_timestamp()';

-- So many microseconds after an instant.
CREATE OR REPLACE FUNCTION tower_lock.after(instant timestamptz, micros bigint) RETURNS timestamptz
LANGUAGE sql IMMUTABLE AS $$ SELECT instant + micros * interval '1 microsecond' $$;

-- Begins a step on some keys, and returns its time. The keys are entered in one order, whatever order they are named in, so
-- two transactions never deadlock. The sweeps enter no key, and wait for no row.
CREATE OR REPLACE FUNCTION tower_lock.enter(VARIADIC keys text[]) RETURNS timestamptz
LANGUAGE plpgsql AS $$
DECLARE
  present timestamptz;
BEGIN
  -- Otherwise a step would not see what was committed while it waited for the key. A store asks for it when it connects, but a
  -- pooler may drop that.
  IF current_setting('transaction_isolation') NOT IN ('read committed', 'read uncommitted') THEN
    RAISE EXCEPTION USING ERRCODE = 'invalid_transaction_state', MESSAGE = 'locks need transactions that are read committed',
      HINT = 'ALTER ROLE … SET default_transaction_isolation = ''read committed''';
  END IF;
  PERFORM pg_advisory_xact_lock(number)
    FROM (SELECT DISTINCT hashtextextended(name, 4242) AS number FROM unnest(keys) AS name ORDER BY 1) AS numbers;
  present := tower_lock.clock();
  DELETE FROM tower_lock.entry WHERE key = ANY (keys) AND until <= present;
  RETURN present;
END $$;

-- The kind of a hold in a mode.
CREATE OR REPLACE FUNCTION tower_lock.kind(mode text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$ SELECT CASE WHEN mode IN ('reentrant', 'fair') THEN 'exclusive' ELSE mode END $$;

-- Until when a key has entries of some kinds; null if it has none.
CREATE OR REPLACE FUNCTION tower_lock.longest(k text, VARIADIC kinds text[]) RETURNS timestamptz
LANGUAGE sql STABLE AS $$ SELECT max(until) FROM tower_lock.entry WHERE key = k AND kind = ANY (kinds) $$;

-- Writes an entry. One that is there keeps its place.
CREATE OR REPLACE FUNCTION tower_lock.put(k text, what text, i text, ends timestamptz) RETURNS void
LANGUAGE sql AS $$
  INSERT INTO tower_lock.entry (key, kind, id, until) VALUES (k, what, i, ends)
    ON CONFLICT (key, kind, id) DO UPDATE SET until = excluded.until
$$;

-- Removes entries of some kinds, and says whether there were any.
CREATE OR REPLACE FUNCTION tower_lock.remove(k text, i text, VARIADIC kinds text[]) RETURNS boolean
LANGUAGE plpgsql AS $$
BEGIN
  DELETE FROM tower_lock.entry WHERE key = k AND id = i AND kind = ANY (kinds);
  RETURN FOUND;
END $$;

-- Until when something stands in the way of an attempt; null if nothing does.
CREATE OR REPLACE FUNCTION tower_lock.obstacle(k text, mode text, i text) RETURNS timestamptz
LANGUAGE plpgsql STABLE AS $$
DECLARE
  first tower_lock.entry;
BEGIN
  IF EXISTS (SELECT FROM tower_lock.entry WHERE key = k AND kind = tower_lock.kind(mode) AND id = i) THEN
    RETURN NULL; -- Acquiring twice is acquiring once.
  ELSIF mode = 'reentrant' THEN
    RETURN tower_lock.longest(k, 'exclusive');
  ELSIF mode = 'fair' THEN
    SELECT * INTO first FROM tower_lock.entry WHERE key = k AND kind = 'queue' ORDER BY place LIMIT 1;
    RETURN coalesce(tower_lock.longest(k, 'exclusive'), CASE WHEN first.id <> i THEN first.until END);
  ELSIF mode = 'write' THEN
    RETURN coalesce(tower_lock.longest(k, 'write', 'read'), tower_lock.longest(k, 'pass'));
  ELSIF EXISTS (SELECT FROM tower_lock.entry WHERE key = k AND kind = 'pass' AND id = i) THEN
    RETURN tower_lock.longest(k, 'write');
  END IF;
  RETURN coalesce(tower_lock.longest(k, 'write'), tower_lock.longest(k, 'writer'));
END $$;

-- Asks for a hold. The verdict is `granted`, `refused`, `withdrawn` or `conflict`; `wait` is in microseconds. A waiter is
-- remembered for `patience` microseconds, if that is not null. `attempt` is the id of the attempt, `i` that of its hold.
CREATE OR REPLACE FUNCTION tower_lock.acquire(k text, mode text, i text, attempt text, lease bigint, patience bigint,
  fenced boolean, OUT verdict text, OUT wait bigint, OUT token bigint)
LANGUAGE plpgsql AS $$
DECLARE
  present timestamptz := tower_lock.enter(k);
  others text[] := CASE WHEN tower_lock.kind(mode) = 'exclusive' THEN '{read, write}'::text[] ELSE '{exclusive}' END;
  waiting text := CASE mode WHEN 'fair' THEN 'queue' WHEN 'read' THEN 'reader' WHEN 'write' THEN 'writer' END;
  blocked timestamptz;
BEGIN
  IF EXISTS (SELECT FROM tower_lock.entry WHERE key = k AND kind = 'withdrawn ' || mode AND id = attempt) THEN
    verdict := 'withdrawn';
    RETURN;
  ELSIF tower_lock.longest(k, VARIADIC others) IS NOT NULL THEN
    verdict := 'conflict';
    RETURN;
  END IF;
  blocked := tower_lock.obstacle(k, mode, i);
  IF blocked IS NOT NULL THEN
    verdict := 'refused';
    wait := ceil(extract(epoch FROM blocked - present) * 1000000);
    IF patience IS NOT NULL AND waiting IS NOT NULL THEN
      PERFORM tower_lock.put(k, waiting, i, tower_lock.after(present, patience));
    END IF;
    RETURN;
  END IF;
  verdict := 'granted';
  PERFORM tower_lock.remove(k, i, 'pass', waiting);
  PERFORM tower_lock.put(k, tower_lock.kind(mode), i, tower_lock.after(present, lease));
  IF fenced AND mode <> 'read' THEN -- Readers share.
    token := nextval('tower_lock.token') << 20;
  END IF;
END $$;

-- Asks for all of several holds, or for the first that is free. `at` is the index of the attempt that decided; `tokens`
-- are those of the holds that were granted.
CREATE OR REPLACE FUNCTION tower_lock.acquire_several(every boolean, keys text[], modes text[], ids text[], leases bigint[],
  fenced boolean[], OUT verdict text, OUT at integer, OUT wait bigint, OUT tokens bigint[])
LANGUAGE plpgsql AS $$
DECLARE
  one record;
BEGIN
  PERFORM tower_lock.enter(VARIADIC keys);
  tokens := '{}';
  FOR n IN 1 .. cardinality(keys) LOOP
    at := n - 1;
    one := tower_lock.acquire(keys[n], modes[n], ids[n], ids[n], leases[n], NULL, fenced[n]);
    wait := CASE WHEN every THEN one.wait ELSE least(wait, one.wait) END;
    verdict := one.verdict;
    IF verdict = 'granted' THEN
      tokens := array_append(tokens, one.token);
    END IF;
    EXIT WHEN verdict NOT IN ('granted', 'refused') OR every <> (verdict = 'granted');
  END LOOP;
  IF every AND verdict <> 'granted' THEN
    RAISE EXCEPTION USING ERRCODE = 'TLOCK';
  END IF;
EXCEPTION WHEN SQLSTATE 'TLOCK' THEN
  tokens := '{}'; -- What the function did has been undone. The answer stands.
END $$;

-- Begins the leases of holds anew, or asks for them where the lease is null. A renewal shortens no life.
CREATE OR REPLACE FUNCTION tower_lock.renew(keys text[], modes text[], ids text[], leases bigint[]) RETURNS boolean[]
LANGUAGE plpgsql AS $$
DECLARE
  present timestamptz := tower_lock.enter(VARIADIC keys);
  ends timestamptz;
  held boolean[] := '{}';
BEGIN
  FOR n IN 1 .. cardinality(keys) LOOP
    SELECT until INTO ends FROM tower_lock.entry
      WHERE key = keys[n] AND kind = tower_lock.kind(modes[n]) AND id = ids[n];
    held := array_append(held, FOUND);
    IF FOUND AND leases[n] IS NOT NULL THEN
      ends := greatest(ends, tower_lock.after(present, leases[n]));
      PERFORM tower_lock.put(keys[n], tower_lock.kind(modes[n]), ids[n], ends);
    END IF;
  END LOOP;
  RETURN held;
END $$;

-- Wakes those who listen to a key: `exclusive`, `readwrite`, or `fair` and an id. The message goes out with the commit.
CREATE OR REPLACE FUNCTION tower_lock.wake(k text, channel text) RETURNS void
LANGUAGE sql AS $$ SELECT pg_notify('tower_lock', channel || ' ' || k) $$;

-- Wakes the first in the fair queue; if it is empty, those who wait without a place in it.
CREATE OR REPLACE FUNCTION tower_lock.wake_next(k text) RETURNS void
LANGUAGE sql AS $$
  SELECT tower_lock.wake(k, coalesce(
    (SELECT 'fair ' || id FROM tower_lock.entry WHERE key = k AND kind = 'queue' ORDER BY place LIMIT 1), 'exclusive'))
$$;

-- What follows the end of a hold of some kind in some mode.
CREATE OR REPLACE FUNCTION tower_lock.ended(k text, mode text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
  IF mode = 'reentrant' THEN
    PERFORM tower_lock.wake(k, 'exclusive');
    PERFORM tower_lock.wake(k, 'fair ' || id) FROM tower_lock.entry WHERE key = k AND kind = 'queue' ORDER BY place LIMIT 1;
  ELSIF mode = 'fair' THEN
    PERFORM tower_lock.wake_next(k);
  ELSIF mode = 'write' THEN
    -- The readers that wait now go before the next writer.
    UPDATE tower_lock.entry SET kind = 'pass' WHERE key = k AND kind = 'reader';
    PERFORM tower_lock.wake(k, 'readwrite');
  ELSIF tower_lock.longest(k, 'read') IS NULL THEN
    PERFORM tower_lock.wake(k, 'readwrite');
  END IF;
END $$;

-- Ends a hold, leaves the record that is given, and says whether there was such a hold.
CREATE OR REPLACE FUNCTION tower_lock.release(k text, mode text, i text, content bytea, retention bigint) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  present timestamptz := tower_lock.enter(k);
BEGIN
  IF NOT tower_lock.remove(k, i, tower_lock.kind(mode)) THEN
    RETURN false;
  END IF;
  IF content IS NOT NULL THEN
    INSERT INTO tower_lock.record (key, value, until) VALUES (k, content, tower_lock.after(present, retention))
      ON CONFLICT (key) DO UPDATE SET value = excluded.value, until = excluded.until;
  END IF;
  PERFORM tower_lock.ended(k, mode);
  RETURN true;
END $$;

-- Takes back whatever an attempt has left. It is refused for as long as `memory` says, if that is not null.
CREATE OR REPLACE FUNCTION tower_lock.withdraw(k text, mode text, i text, attempt text, memory bigint) RETURNS void
LANGUAGE plpgsql AS $$
DECLARE
  present timestamptz := tower_lock.enter(k);
  waited boolean;
BEGIN
  IF memory IS NOT NULL THEN
    PERFORM tower_lock.put(k, 'withdrawn ' || mode, attempt, tower_lock.after(present, memory));
  END IF;
  waited := tower_lock.remove(k, i, VARIADIC CASE mode
    WHEN 'fair' THEN '{queue}'::text[] WHEN 'write' THEN '{writer}' WHEN 'read' THEN '{pass}' ELSE '{}' END);
  IF mode = 'read' THEN
    PERFORM tower_lock.remove(k, i, 'reader');
  END IF;
  IF tower_lock.remove(k, i, tower_lock.kind(mode)) THEN
    PERFORM tower_lock.ended(k, mode);
  -- The waiters that nothing else held back are woken.
  ELSIF mode = 'fair' AND tower_lock.longest(k, 'exclusive', 'write', 'read') IS NULL THEN
    PERFORM tower_lock.wake_next(k);
  ELSIF mode = 'write' AND waited AND tower_lock.longest(k, 'writer', 'write') IS NULL THEN
    PERFORM tower_lock.wake(k, 'readwrite');
  ELSIF mode = 'read' AND waited AND tower_lock.longest(k, 'pass', 'exclusive', 'write', 'read') IS NULL THEN
    PERFORM tower_lock.wake(k, 'readwrite');
  END IF;
END $$;

-- Ends every hold on a key, and says whether there was any.
CREATE OR REPLACE FUNCTION tower_lock.force(k text) RETURNS boolean
LANGUAGE plpgsql AS $$
DECLARE
  strongest text;
BEGIN
  PERFORM tower_lock.enter(k);
  WITH gone AS (DELETE FROM tower_lock.entry WHERE key = k AND kind IN ('exclusive', 'write', 'read') RETURNING kind)
    SELECT max(kind) INTO strongest FROM gone;
  IF strongest = 'exclusive' THEN
    PERFORM tower_lock.wake(k, 'exclusive');
    PERFORM tower_lock.wake_next(k);
  ELSIF strongest IS NOT NULL THEN
    PERFORM tower_lock.ended(k, strongest);
  END IF;
  RETURN strongest IS NOT NULL;
END $$;

-- Who holds a key, and who waits for it: `most` of each.
CREATE OR REPLACE FUNCTION tower_lock.inspect(k text, most bigint, OUT holders text[], OUT kinds text[],
  OUT remaining bigint[], OUT waiters text[], OUT truncated boolean)
LANGUAGE plpgsql AS $$
DECLARE
  present timestamptz := tower_lock.enter(k);
BEGIN
  SELECT coalesce(array_agg(id), '{}'), coalesce(array_agg(kind), '{}'),
      coalesce(array_agg((extract(epoch FROM until - present) * 1000000)::bigint), '{}'), count(*) > most
    INTO holders, kinds, remaining, truncated
    FROM (SELECT * FROM tower_lock.entry WHERE key = k AND kind IN ('exclusive', 'write', 'read') LIMIT most + 1) AS held;
  SELECT coalesce(array_agg(id ORDER BY array_position('{queue,pass,writer,reader}', kind), place), '{}'),
      truncated OR count(*) > most
    INTO waiters, truncated
    FROM (SELECT * FROM tower_lock.entry WHERE key = k AND kind IN ('queue', 'pass', 'writer', 'reader')
      ORDER BY place LIMIT most + 1) AS waiting;
  holders := holders[:most];
  waiters := waiters[:most];
END $$;

-- Removes entries that have had their time, of keys that are not used any more: a thousand, so that no question waits long for
-- one of them. Returns how many it has removed. It enters no key. What another transaction has locked is left to the next call, and
-- a row that is renewed meanwhile stays. The time is a subquery, because no index serves a comparison with a volatile function.
CREATE OR REPLACE FUNCTION tower_lock.sweep_entries() RETURNS bigint
LANGUAGE sql AS $$
  WITH gone AS (DELETE FROM tower_lock.entry WHERE ctid = ANY (ARRAY(SELECT ctid FROM tower_lock.entry
      WHERE until <= (SELECT tower_lock.clock()) ORDER BY until LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING key)
    SELECT count(*) FROM gone
$$;

-- The same for records.
CREATE OR REPLACE FUNCTION tower_lock.sweep_records() RETURNS bigint
LANGUAGE sql AS $$
  WITH gone AS (DELETE FROM tower_lock.record WHERE ctid = ANY (ARRAY(SELECT ctid FROM tower_lock.record
      WHERE until <= (SELECT tower_lock.clock()) ORDER BY until LIMIT 1000 FOR UPDATE SKIP LOCKED)) RETURNING key)
    SELECT count(*) FROM gone
$$;
