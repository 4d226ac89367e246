-- Makes the caller the writer. ARGV: session, token, writer, epoch of a new store, label.
-- Returns whether the store is new or "", and the fields that the writer continues from.
local session, token, writer, epoch, label = unpack(ARGV)
local before, known = '', redis.call('EXISTS', about) == 1
if known then
  if number('token') > tonumber(token) then
    return redis.error_reply('FENCED the writer is ' .. field('writer') .. ' with token ' .. field('token'))
  end
  before = missing() or ''
end
if not known or before ~= '' then
  redis.call('UNLINK', about, objects, order, tombstones, log)
  redis.call('HSET', about, 'label', label, 'epoch', epoch, 'written', '0', 'begun', '', 'call', '', 'objects', '0',
    'tombstones', '0', 'bookmark', '', 'version', '', 'highest', '', 'first', '', 'last', '', 'log', '', 'logged', '0')
end
-- Each takeover leaves a line with the session before the version at which it began.
-- A reader that was away during more than the last 64 takeovers must list.
local version = field('version')
if version == '' then version = '0' end
local takeovers = field('takeovers') .. session .. ' ' .. version .. '\n'
local _, lines = string.gsub(takeovers, '\n', '')
for _ = 1, lines - 64 do takeovers = string.gsub(takeovers, '^[^\n]*\n', '') end
redis.call('HSET', about, 'session', session, 'token', token, 'writer', writer, 'since', redis.call('TIME')[1],
  'takeovers', takeovers)
return {before, field('written'), field('call'), field('bookmark'), field('version'), field('highest'), field('epoch'),
  field('log'), field('last'), field('first')}
