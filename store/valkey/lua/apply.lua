-- Makes changes, all or none. ARGV: session, number and id of the last write, id of this write,
-- number of entries to keep in the log, number of fields, the fields with their values, and the
-- changes: each is a name and its arguments.
local session, written, last, call, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local err = foreign(session, written)
if err then return err end
if field('call') == call then return 'AGAIN' end
if field('call') ~= last then
  return redis.error_reply('OTHER ' .. field('call'))
end
local stored, buried, logged = number('objects'), number('tombstones'), number('logged')
local i = 7 + 2 * tonumber(ARGV[6])
local function enter(id, kind, key, object)
  if id == '' then return end
  redis.call('XADD', log, id, 't', kind, 'k', key, 'o', object)
  logged = logged + 1
end
local function remove(i)
  stored = stored - redis.call('HDEL', objects, ARGV[i])
  redis.call('ZREM', order, ARGV[i])
  enter(ARGV[i + 2], 'delete', ARGV[i], ARGV[i + 1])
  return 3
end
-- A server whose memory is full refuses the first command that needs some, and lets all go through that
-- come after another one. So this is the first one, unless the call only forgets.
if ARGV[i] ~= 'forget' then redis.call('HSET', about, 'begun', call) end
-- Each change has the number of its arguments, which begin at i.
local change = {
  put = function(i) -- key, object, id of the entry in the log
    local new = redis.call('HSET', objects, ARGV[i], ARGV[i + 1])
    stored = stored + new
    redis.call('ZADD', order, '0', ARGV[i])
    enter(ARGV[i + 2], new == 1 and 'add' or 'change', ARGV[i], ARGV[i + 1])
    return 3
  end,
  remove = remove, -- key, object, id of the entry in the log
  bury = function(i) -- the same, and the tombstone
    buried = buried + redis.call('HSET', tombstones, ARGV[i + 3], ARGV[i + 1])
    return 1 + remove(i)
  end,
  forget = function(i) -- tombstone
    buried = buried - redis.call('HDEL', tombstones, ARGV[i])
    return 1
  end,
  restart = function() -- begins another log
    redis.call('UNLINK', log)
    logged = 0
    return 0
  end,
}
while i <= #ARGV do i = i + 1 + change[ARGV[i]](i + 1) end
if logged > 0 then redis.call('XTRIM', log, 'MAXLEN', '~', keep) end
for f = 7, 5 + 2 * tonumber(ARGV[6]), 2 do
  redis.call('HSET', about, ARGV[f], ARGV[f + 1])
end
redis.call('HSET', about, 'written', tonumber(written) + 1, 'begun', call, 'call', call, 'objects', stored, 'tombstones', buried, 'logged', logged)
return 'DONE'
