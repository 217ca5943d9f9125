package disk

// For tests of other packages.
var LockImage = lockImage
