-- Returns fields. ARGV: session, or "" for a reader; number of the last write; the names.
local err
if ARGV[1] == '' then err = lost() else err = foreign(ARGV[1], ARGV[2]) end
if err then return err end
local values = {}
for i = 3, #ARGV do values[i - 2] = field(ARGV[i]) end
return values
