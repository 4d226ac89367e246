package clusters

// SystemUID is the default of Options.UID.
var SystemUID = systemUID
