package host

var DropSchedulesOfGoneHosts = dropSchedulesOfGoneHosts
