-- chain identifies the chain, so that a running host notices if its tables are dropped and made again.
ALTER TABLE chaingql_state ADD COLUMN chain uuid NOT NULL DEFAULT gen_random_uuid();

-- "POSIX" sorts as "C" does, and matches no other index: without statistics the planner took
-- blocks_by_workchain for the pages of a shard, and read all blocks of the workchain.
DROP INDEX blocks_by_shard;
CREATE INDEX blocks_by_shard ON blocks (workchain, shard, cursor COLLATE "POSIX");

-- Followers of a chain learn from chaingql_state.pruned that blocks were deleted. These triggers refuse
-- whatever would delete or change blocks without that.

CREATE FUNCTION chaingql_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'chaingql: % of %.% is refused: readers would lose blocks without an error',
        TG_OP, TG_TABLE_SCHEMA, TG_TABLE_NAME
        USING ERRCODE = 'restrict_violation',
        HINT = 'Delete only the oldest blocks, by DELETE or Writer.Prune. To start again, drop the schema.';
END $$;

CREATE TRIGGER chaingql_refuse BEFORE TRUNCATE OR UPDATE ON blocks
    FOR EACH STATEMENT EXECUTE FUNCTION chaingql_refuse();
CREATE TRIGGER chaingql_refuse BEFORE TRUNCATE OR DELETE ON chaingql_state
    FOR EACH STATEMENT EXECUTE FUNCTION chaingql_refuse();
CREATE TRIGGER chaingql_refuse_update BEFORE UPDATE ON chaingql_state FOR EACH ROW
    WHEN (NEW.pruned < OLD.pruned OR NEW.chain <> OLD.chain) EXECUTE FUNCTION chaingql_refuse();

-- A DELETE must leave no older block and at least one newer one. It moves pruned. The settings keep the plans
-- on the primary key whatever the statistics say.
CREATE FUNCTION chaingql_deleted() RETURNS trigger LANGUAGE plpgsql
    SET enable_seqscan = off SET enable_bitmapscan = off AS $$
DECLARE
    deleted text COLLATE "C" := (SELECT max(cursor) FROM gone);
    floor text COLLATE "C";
    allowed boolean;
BEGIN
    IF deleted IS NULL THEN
        RETURN NULL;
    END IF;
    EXECUTE format('SELECT pruned FROM %I.chaingql_state FOR UPDATE', TG_TABLE_SCHEMA) INTO floor;
    EXECUTE format('SELECT EXISTS (SELECT FROM %1$I.blocks WHERE cursor > $2)'
        ' AND NOT EXISTS (SELECT FROM %1$I.blocks WHERE cursor > $1 AND cursor <= $2)',
        TG_TABLE_SCHEMA) INTO allowed USING floor, deleted;
    IF NOT allowed THEN
        RAISE EXCEPTION 'chaingql: a DELETE on %.% up to cursor % is refused: it must delete the oldest blocks and keep the newest',
            TG_TABLE_SCHEMA, TG_TABLE_NAME, deleted
            USING ERRCODE = 'restrict_violation';
    END IF;
    EXECUTE format('UPDATE %I.chaingql_state SET pruned = $1 WHERE pruned < $1', TG_TABLE_SCHEMA) USING deleted;
    RETURN NULL;
END $$;

CREATE TRIGGER chaingql_deleted AFTER DELETE ON blocks REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION chaingql_deleted();
