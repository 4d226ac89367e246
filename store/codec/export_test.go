package codec

import "reflect"

// Fingerprint is fingerprint.
func Fingerprint(t reflect.Type) string { return fingerprint(t) }

// OwnEncoding is ownEncoding.
func OwnEncoding(t reflect.Type) string { return string(ownEncoding(t)) }
