ALTER IGNORE TABLE only_key ENGINE=InnoDB;
CREATE TABLE short_year (a year(2));
