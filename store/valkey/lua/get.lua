-- Returns an object. ARGV: session, number of the last write, key.
local err = foreign(ARGV[1], ARGV[2])
if err then return err end
return redis.call('HGET', objects, ARGV[3])
