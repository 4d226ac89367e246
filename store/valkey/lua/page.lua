-- Returns a page of objects in the order of their keys. ARGV: session, or "" for a reader; number of
-- the last write; the key after which the page begins; number of objects, and of bytes, at most.
-- Returns the epoch, the log, the version and the id of the last entry that the page is as new as, the session
-- that writes, and for each object its key and itself.
local err
if ARGV[1] == '' then err = lost() else err = foreign(ARGV[1], ARGV[2]) end
if err then return err end
local page, bytes, after = {field('epoch'), field('log'), field('version'), field('last'), field('session')}, 0, '-'
if ARGV[3] ~= '' then after = '(' .. ARGV[3] end
for _, key in ipairs(redis.call('ZRANGE', order, after, '+', 'BYLEX', 'LIMIT', '0', ARGV[4])) do
  local object = redis.call('HGET', objects, key)
  if not object then
    return redis.error_reply('LOST the server does not have the object ' .. key)
  end
  page[#page + 1] = key
  page[#page + 1] = object
  bytes = bytes + #key + #object
  if bytes >= tonumber(ARGV[5]) then break end
end
return page
