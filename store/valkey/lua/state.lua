-- Every script begins with this part. It reads what the store says about itself, and has a
-- function that finds parts that are missing.
local about, objects, order, tombstones, log = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]

local function field(name) return redis.call('HGET', about, name) or '' end

local function number(name) return tonumber(field(name)) or 0 end

-- missing names a part that does not have all that was written to it. A server that evicts keys
-- removes a part as a whole.
local function missing()
  -- A script that fails in the middle, for want of a right, has made a part of its changes.
  if field('begun') ~= field('call') then return 'changes' end
  if redis.call('HLEN', objects) ~= number('objects') then return 'objects' end
  if redis.call('ZCARD', order) ~= number('objects') then return 'keys' end
  if redis.call('HLEN', tombstones) ~= number('tombstones') then return 'tombstones' end
  if number('logged') > 0 and redis.call('XLEN', log) == 0 then return 'log' end
  return nil
end

-- lost returns an error if the server does not have the store any more.
local function lost()
  if redis.call('EXISTS', about) == 0 then
    return redis.error_reply('LOST the server does not have the store')
  end
  local part = missing()
  if part then
    return redis.error_reply('LOST the server does not have all ' .. part .. ' of the store')
  end
  return nil
end

-- foreign returns an error if another store writes now, or if the server has gone back to a
-- time before the write with that number.
local function foreign(session, written)
  local err = lost()
  if err then return err end
  if field('session') ~= session then
    if number('written') < tonumber(written) then
      return redis.error_reply('LOST the server has an older state of the store')
    end
    return redis.error_reply('FENCED the writer is ' .. field('writer') .. ' with token ' .. field('token'))
  end
  if number('written') < tonumber(written) then
    return redis.error_reply('LOST the server has an older state of the store')
  end
  return nil
end
