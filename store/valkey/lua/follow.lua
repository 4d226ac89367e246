-- Returns entries of the log. ARGV: the log, the id after which they begin, number at most, and the
-- session that wrote when the reader asked last, or "". Returns the present epoch, log, version, first
-- version and oldest id, whether the log has been trimmed, the session that writes, the lowest version at
-- which one has taken over since the reader's, or "" for none, and the entries. There are none if the log
-- is another one.
local err = lost()
if err then return err end
local oldest, entries = redis.call('XRANGE', log, '-', '+', 'COUNT', '1'), {}
if #oldest > 0 then oldest = oldest[1][1] else oldest = '' end
if field('log') == ARGV[1] and field('version') ~= '' then
  entries = redis.call('XRANGE', log, '(' .. ARGV[2], '+', 'COUNT', ARGV[3])
end
local trimmed = redis.call('XLEN', log) < number('logged')
-- Versions have up to 63 bits, and Lua's numbers only 53, so they are compared as texts.
local function less(a, b) return #a < #b or #a == #b and a < b end
local lowest, since = '', false
for session, version in string.gmatch(field('takeovers'), '(%S+) (%d+)') do
  if since and (lowest == '' or less(version, lowest)) then lowest = version end
  since = since or session == ARGV[4]
end
if not since and ARGV[4] ~= '' then lowest = '0' end -- longer ago than the server knows
return {field('epoch'), field('log'), field('version'), field('first'), oldest, trimmed and 1 or 0,
  field('session'), lowest, entries}
