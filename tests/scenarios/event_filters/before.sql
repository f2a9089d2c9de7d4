CREATE DATABASE event_filters;
CREATE TABLE event_filters.kept (id INT PRIMARY KEY, v INT);
CREATE TABLE event_filters.dropped (id INT PRIMARY KEY, v INT);
CREATE TABLE event_filters.only_inserts (id INT PRIMARY KEY, v INT);
CREATE TABLE event_filters.by_text (id INT PRIMARY KEY, v INT);
INSERT INTO event_filters.kept VALUES (1, 1), (2, 2);
INSERT INTO event_filters.dropped VALUES (1, 1);
INSERT INTO event_filters.only_inserts VALUES (1, 1), (2, 2);
INSERT INTO event_filters.by_text VALUES (1, 1);
