-- Returns entries of the log. ARGV: the log, the id after which they begin, number at most. Returns
-- the present epoch, log, version, first version and oldest id, whether the log has been trimmed, and
-- the entries. There are none if the log is another one.
local err = lost()
if err then return err end
local oldest, entries = redis.call('XRANGE', log, '-', '+', 'COUNT', '1'), {}
if #oldest > 0 then oldest = oldest[1][1] else oldest = '' end
if field('log') == ARGV[1] and field('version') ~= '' then
  entries = redis.call('XRANGE', log, '(' .. ARGV[2], '+', 'COUNT', ARGV[3])
end
local trimmed = redis.call('XLEN', log) < number('logged')
return {field('epoch'), field('log'), field('version'), field('first'), oldest, trimmed and 1 or 0, entries}
